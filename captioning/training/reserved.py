"""Settings of Lightning's trainer that a run sets itself."""

RESERVED = {
    "callbacks": "choose callbacks=[early_stopping], or add one: '+callbacks.NAME={_target_: ...}'",
    "max_epochs": "set num_epochs=N",
    "logger": "choose logger=none, or some of logger=[csv,tensorboard,wandb,mlflow]",
    "default_root_dir": "set run_dir=FOLDER",
    "plugins": "set trainer.precision=, trainer.strategy= or trainer.devices=",
    "reload_dataloaders_every_n_epochs": "leave it out: curation needs new batches every epoch",
    "use_distributed_sampler": "leave it out: batches are divided among processes already",
    "enable_checkpointing": "leave it out: a run is tested and resumed with its checkpoints",
    "overfit_batches": "set first_images=N",
    "fast_dev_run": "try a run out with debug=smoke",
}
"""By key of ``trainer``: what users set instead."""
