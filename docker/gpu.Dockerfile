# Was not built where it was written: no registry of images could be reached there. The base is named by
# version; pin it by digest (FROM nvidia/cuda:...@sha256:...) before you publish an image. The host needs
# NVIDIA's driver and container toolkit.
#
#   docker build --file docker/gpu.Dockerfile --tag captioning:gpu .
#   docker run --rm --gpus all --shm-size 8g --volume "$PWD:/data" captioning:gpu train data=own data.root=my_photos
#
# torch's packages bring CUDA's libraries of their own, so the base need hold no more than the driver's.
FROM nvidia/cuda:12.8.1-base-ubuntu24.04

RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv python3-dev gcc default-jre-headless \
    && rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /opt/captioning
COPY . .
# constraints.txt was made with Python 3.11; Ubuntu 24.04 has 3.12.
RUN python3 -m venv /opt/venv \
    && pip install --no-cache-dir --constraint constraints.txt \
       ".[offline,parser,augmentation,arrow,vlm,language-model]"

RUN useradd --create-home captioning && mkdir /data && chown captioning /data
USER captioning
WORKDIR /data
ENTRYPOINT ["captioning"]
CMD ["--help"]
