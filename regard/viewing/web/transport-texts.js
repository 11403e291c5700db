// The texts of the playback controls.

export const TRANSPORT_TEXTS = {
  en: {
    first: 'first step',
    back: 'previous step',
    play: 'play',
    pause: 'pause',
    next: 'next step',
    last: 'last step',
    step: 'Step',
    of: '{step} of {count}',
  },
  zh: {
    first: '第一步',
    back: '上一步',
    play: '播放',
    pause: '暂停',
    next: '下一步',
    last: '最后一步',
    step: '步',
    of: '{step} / {count}',
  },
};
