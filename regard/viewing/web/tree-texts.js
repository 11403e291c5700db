// The texts of the beam search tree.

export const TREE_TEXTS = {
  en: {
    label: 'The beam as a tree. Arrow keys move from token to token.',
    node: '{text}: probability {p}, score {score}, {status}',
    best: 'part of the best hypothesis',
    finished: 'a finished hypothesis',
    onBeam: 'on the beam',
    pruned: 'pruned after this step',
    extended: 'extended at a later step',
    hint: 'Point at a token to see its score.',
  },
  zh: {
    label: '束搜索树。方向键在词元之间移动。',
    node: '{text}：概率 {p}，得分 {score}，{status}',
    best: '属于最优假设',
    finished: '已结束的假设',
    onBeam: '在束中',
    pruned: '此步之后被剪枝',
    extended: '在后续步骤中被扩展',
    hint: '指向一个词元即可看到它的得分。',
  },
};
