// What the page of a caption says.

export const CAPTION_WORDS = {
  en: {
    caption: 'Caption',
    looked: 'Where it looked',
    sure: '{word}: probability {share}; the brightest cell has {weight} of the regard',
    blind: '{word}: probability {share}. This model has no attention, so there are no weights to show.',
    smooth: 'smooth',
    cells: 'cells',
    keys: 'Arrow keys go from word to word, the space bar plays · light falls where the model looked, which is not why it said a word',
  },
  zh: {
    caption: '说明',
    looked: '它看了哪里',
    sure: '{word}：概率 {share}；最亮的一格占全部关注的 {weight}',
    blind: '{word}：概率 {share}。这个模型没有注意力，没有权重可看。',
    smooth: '平滑',
    cells: '按格',
    keys: '方向键逐词移动，空格键播放 · 亮处是模型所看之处，并不说明它为何用这个词',
  },
};
