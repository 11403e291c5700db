// The texts of a heatmap.

export const HEAT_TEXTS = {
  en: {
    cell: '{row} attends to {column}: {weight}',
    keys: 'Arrow keys move, Enter pins, + and − zoom',
    zoomIn: 'zoom in',
    zoomOut: 'zoom out',
    fit: 'fit',
    root: '√ contrast',
  },
  zh: {
    cell: '“{row}”对“{column}”的权重：{weight}',
    keys: '方向键移动，回车固定，+ 和 − 缩放',
    zoomIn: '放大',
    zoomOut: '缩小',
    fit: '适合窗口',
    root: '√ 对比',
  },
};
