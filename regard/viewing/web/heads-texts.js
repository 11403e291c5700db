// The texts of the page of all heads.

export const HEADS_TEXTS = {
  en: {
    overview: 'Layers and heads',
    head: 'Layer {layer}, head {head}',
    most: 'Largest weights of {word}',
    hint: 'Point at a row, or pin one with a click, to list its largest weights.',
    keys: 'Tab to the thumbnails, arrow keys select a head · Tab to the map, arrow keys move, Enter pins, Escape unpins, + and − zoom',
  },
  zh: {
    overview: '层与头',
    head: '第 {layer} 层，第 {head} 头',
    most: '{word} 的最大权重',
    hint: '指向一行，或点击固定一行，列出它的最大权重。',
    keys: 'Tab 到缩略图，方向键选择头 · Tab 到热图，方向键移动，回车固定，Esc 取消固定，+ 和 − 缩放',
  },
};
