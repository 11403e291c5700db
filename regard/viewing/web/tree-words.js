// What the tree of a search says.

export const TREE_WORDS = {
  en: {
    label: 'The beam as a tree. Arrow keys move from word to word.',
    says: '{text}: probability {p}, score {score}, {fate}',
    won: 'part of the translation that won',
    ended: 'a translation that ended here',
    lives: 'still on the beam',
    dropped: 'dropped after this step',
    led: 'led on',
    hint: 'Point at a word to see its score.',
  },
  zh: {
    label: '集束搜索树。方向键在词之间移动。',
    says: '{text}：概率 {p}，得分 {score}，{fate}',
    won: '属于胜出的译文',
    ended: '一条在此结束的译文',
    lives: '仍在集束中',
    dropped: '此步之后被放弃',
    led: '有后续',
    hint: '指向一个词即可看到它的得分。',
  },
};
