"""Names that other libraries have for options: those of transformers, Lightning, Keras, fairseq and JoeyNMT."""

from __future__ import annotations

from collections.abc import Sequence

from regard.errors import closest

__all__ = ["nearest_options"]

# our name: theirs. Where two of our names have the same one, the first that a config has is meant.
TABLE = {
    "lr": "learning_rate base_lr max_lr peak_lr init_lr learningrate alpha",
    "warmup_steps": "warmup num_warmup_steps warmup_updates warmup_ratio warmup_epochs learning_rate_warmup",
    "steps": "max_steps num_steps total_steps train_steps training_steps num_train_steps iterations max_iters num_iters"
    " max_updates max_update updates",
    "epochs": "num_epochs num_train_epochs max_epochs n_epochs epoch max_epoch",
    "max_minutes": "max_time time_limit timeout hours max_hours minutes",
    "grad_accumulation": "grad_accum gradient_accumulation gradient_accumulation_steps accumulate_grad_batches "
    " accum_steps grad_accum_steps grad_accumulation_steps update_freq accum_count batch_multiplier accumulation",
    "max_grad_norm": "clip clip_norm grad_clip gradient_clip gradient_clip_val clip_grad clip_grad_norm clip_gradients"
    " max_norm max_gradient_norm grad_norm clipnorm",
    "batch_size": "bs batch batchsize train_batch_size per_device_train_batch_size minibatch sentences max_sentences",
    "batch_tokens": "max_tokens tokens_per_batch batch_max_tokens bs batch batchsize batch_size train_batch_size"
    " per_device_train_batch_size minibatch sentences max_sentences",
    "num_threads": "workers num_workers n_workers dataloader_num_workers threads num_cpus cpus jobs n_jobs",
    "validate_every": "eval_steps eval_every eval_interval eval_freq val_every val_check_interval validation_freq"
    " valid_steps validation_interval validate_interval valid_freq check_val_every_n_epoch evaluation_strategy",
    "save_every": "save_steps save_interval save_freq checkpoint_every checkpoint_steps save_checkpoint_steps",
    "keep_checkpoints": "save_total_limit keep_last keep_last_ckpts max_to_keep keep_checkpoint save_top_k",
    "patience": "early_stopping early_stopping_patience early_stop",
    "monitor": "metric metric_for_best_model early_stopping_metric best_metric",
    "average_last": "avg_checkpoint average_checkpoints swa ema num_average",
    "precision": "fp16 bf16 amp half mixed_precision autocast dtype torch_dtype",
    "device": "gpu gpus cuda use_cuda use_gpu accelerator use_cpu no_cuda devices",
    "compile": "torch_compile jit",
    "seed": "random_seed manual_seed random_state rng",
    "optimizer": "optim optimiser opt solver",
    "schedule": "scheduler lr_scheduler lr_scheduler_type lr_schedule scheduling decay_method",
    "weight_decay": "wd l2 decay l2_regularization",
    "eps": "epsilon adam_epsilon adam_eps",
    "beta1": "betas adam_betas adam_beta1",
    "beta2": "adam_beta2",
    "tensorboard": "logger report_to log_dir logging_dir wandb",
    "dropout": "dropout_rate dropout_prob p_dropout drop hidden_dropout_prob",
    "label_smoothing": "smoothing label_smoothing_factor ls",
    "beam_size": "beam beams num_beams beam_width",
    "length_penalty": "alpha len_pen lenpen",
    "embed_dim": "d_model embedding_dim emb_dim emb_size embedding_size embed_size model_dim dim",
    "hidden_dim": "hidden_size rnn_size hidden d_model dim num_hiddens units",
    "ffn_dim": "d_ff dim_feedforward ff_dim intermediate_size feedforward_dim ffn_size",
    "num_heads": "heads nhead n_heads n_head num_attention_heads attention_heads",
    "num_layers": "layers n_layers nlayers n_layer num_hidden_layers depth",
    "norm_first": "pre_norm prenorm norm normalize_before layer_norm",
    "vocab_size": "vocab num_words max_vocab vocabulary_size",
    "max_length": "max_len max_seq_length max_seq_len max_sequence_length seq_len max_new_tokens max_source_length",
    "passage_length": "block_size context_length seq_len max_seq_length max_length bptt",
    "tie_embeddings": "tied_embeddings tie_weights tie_word_embeddings share_embeddings",
    "score": "attention attn attention_type attention_score score_function",
    "train_files": "train train_file train_data data files dataset",
    "valid_files": "valid validation valid_file validation_file dev valid_data eval_file dev_files val_files",
    "test_files": "test test_file test_data",
    "data_dir": "data data_path dataset root",
    "cell_type": "cell rnn rnn_type rnncell",
}  # fmt: skip


def nearest_options(name: str, known: Sequence[str]) -> list[str]:
    """The options that an unknown name may mean: what other libraries call so, else names that resemble it.

    Args:
        name: not an option
        known: the options

    Example:
        >>> nearest_options("learning_rate", ["steps", "lr"]), nearest_options("stepps", ["steps", "lr"])
        (['lr'], ['steps'])
    """
    meant = [ours for ours, theirs in TABLE.items() if name.lower() in theirs.split() and ours in known]
    return meant[:1] or closest(name, known)
