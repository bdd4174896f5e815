"""Settings of Lightning's trainer that users must not set, and what to set instead."""

RESERVED = {
    "callbacks": "choose callbacks=[early_stopping], or add one: '+callbacks.NAME={_target_: ...}'",
    "max_epochs": "set num_epochs=N",
    "logger": "choose logger=none, or some of logger=[csv,tensorboard,wandb,mlflow]",
    "default_root_dir": "set run_dir=FOLDER",
    "plugins": "set trainer.precision=, trainer.strategy= or trainer.devices=",
    "reload_dataloaders_every_n_epochs": "remove it: curation needs new batches every epoch",
    "use_distributed_sampler": "remove it: batches are already divided among processes",
    "enable_checkpointing": "remove it: a run is tested and resumed with its checkpoints",
    "overfit_batches": "set first_images=N",
    "fast_dev_run": "use debug=smoke for a short trial run",
}
"""Advice on what to set instead, by key."""
