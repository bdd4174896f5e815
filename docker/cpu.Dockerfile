# Was not built where it was written: no registry of images could be reached there. The base is named by
# version; pin it by digest (FROM python:3.11-slim-bookworm@sha256:...) before you publish an image.
#
#   docker build --file docker/cpu.Dockerfile --tag captioning .
#   docker run --rm --volume "$PWD:/data" captioning check my_photos
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless \
    && rm -rf /var/lib/apt/lists/*
# The index of PyTorch's builds for processors alone, as PyTorch's install selector says; without it
# torch comes with the libraries of GPUs, several GB.
ARG TORCH_INDEX=
WORKDIR /opt/captioning
COPY . .
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} --constraint constraints.txt torch torchvision \
    && pip install --no-cache-dir --constraint constraints.txt ".[offline,parser,augmentation,arrow]"

# Nothing runs as root; data, caches and runs lie in the folder that is mounted.
RUN useradd --create-home captioning && mkdir /data && chown captioning /data
USER captioning
WORKDIR /data
ENTRYPOINT ["captioning"]
CMD ["--help"]
