// What the page of all heads says.

export const HEADS_WORDS = {
  en: {
    over: 'Layers and heads',
    one: 'Layer {layer}, head {head}',
    layer: 'layer',
    head: 'head',
    most: '{word} looks most at',
    hint: 'Point at a row, or pin one with a click, to see where it looks most.',
    keys: 'Tab to the thumbnails, arrow keys choose a head · Tab to the map, arrow keys move, Enter pins, Escape lets go, + and − zoom',
  },
  zh: {
    over: '层与头',
    one: '第 {layer} 层，第 {head} 头',
    layer: '层',
    head: '头',
    most: '{word} 最关注',
    hint: '指向一行，或点击固定一行，看它最关注什么。',
    keys: 'Tab 到缩略图，方向键选择头 · Tab 到大图，方向键移动，回车固定，Esc 取消，+ 和 − 缩放',
  },
};
