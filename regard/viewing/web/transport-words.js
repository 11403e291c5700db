// What the buttons of a player say.

export const TRANSPORT_WORDS = {
  en: {
    first: 'first step',
    back: 'one step back',
    play: 'play',
    pause: 'pause',
    next: 'one step on',
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
