// What a heat map says.

export const HEAT_WORDS = {
  en: {
    says: '{row} looks at {column}: {weight}',
    keys: 'Arrow keys move, Enter pins, + and − zoom',
    nearer: 'zoom in',
    farther: 'zoom out',
    fit: 'fit',
    root: '√ contrast',
  },
  zh: {
    says: '“{row}”看“{column}”：{weight}',
    keys: '方向键移动，回车固定，+ 和 − 缩放',
    nearer: '放大',
    farther: '缩小',
    fit: '适合窗口',
    root: '√ 对比',
  },
};
