# The payload of the preset jetpack5, and nothing else:
#   docker build --file docker/jetpack5.Dockerfile --output type=local,dest=out .
# On an ARM machine; elsewhere with --platform linux/arm64, and slowly, by QEMU.
# Ubuntu 20.04 has CMake 3.16, too old for presets, and GCC 9, which lacks some of
# the vector loads that ggml uses on ARM. nvcc goes on with GCC 9, and packages are
# not pinned, as doctor's are not: Ubuntu keeps no old ones.
# No GPU is needed to build it, and none is here: it is verified where one is.
FROM golang:1.26-bookworm AS tool
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmake cmake
COPY cmd cmd
COPY internal internal
RUN CGO_ENABLED=0 go build -o /usr/local/bin/payload ./cmd/payload

FROM nvcr.io/nvidia/l4t-jetpack:r35.4.1 AS build
WORKDIR /src
COPY tools/cmake.txt tools/
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc-10 g++-10 g++ python3-pip && rm -rf /var/lib/apt/lists/* \
    && python3 -m pip install --no-cache-dir --no-deps --require-hashes -r tools/cmake.txt
ENV CC=gcc-10 CXX=g++-10
COPY --from=tool /usr/local/bin/payload /usr/local/bin/payload
COPY payload.yaml payload.lock LLAMA_CPP_VERSION ./
COPY cmake cmake
COPY llama llama
RUN --mount=type=cache,target=/root/.cache \
    payload doctor --fix --preset jetpack5 && payload build --preset jetpack5 --no-run

FROM scratch AS payload
COPY --from=build /src/dist/jetpack5/ /
