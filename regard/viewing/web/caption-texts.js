// The texts of the caption page.

export const CAPTION_TEXTS = {
  en: {
    caption: 'Caption',
    attention: 'Attention weights',
    word: '{word}: probability {share}; the largest cell has weight {weight}',
    blind: '{word}: probability {share}. This model has no attention, so there are no weights to show.',
    smooth: 'smooth',
    cells: 'cells',
    keys: 'Arrow keys move from word to word, the space bar plays · brightness shows the attention weights of a word, not the reason for it',
  },
  zh: {
    caption: '图像描述',
    attention: '注意力权重',
    word: '{word}：概率 {share}；最亮的一格权重为 {weight}',
    blind: '{word}：概率 {share}。该模型没有注意力机制，没有可显示的权重。',
    smooth: '平滑',
    cells: '网格',
    keys: '方向键逐词移动，空格键播放 · 亮度表示该词的注意力权重，并不解释模型为何生成这个词',
  },
};
