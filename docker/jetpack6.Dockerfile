# The payload of the preset jetpack6, and nothing else:
#   docker build --file docker/jetpack6.Dockerfile --output type=local,dest=out .
# On an ARM machine; elsewhere with --platform linux/arm64, and slowly, by QEMU.
# The oldest JetPack 6, with CUDA 12.2: what it compiles runs on all of them.
# No GPU is needed to build it, and none is here: it is verified where one is.
FROM golang:1.26-bookworm AS tool
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmake cmake
COPY cmd cmd
COPY internal internal
RUN CGO_ENABLED=0 go build -o /usr/local/bin/payload ./cmd/payload

FROM nvcr.io/nvidia/l4t-jetpack:r36.3.0 AS build
WORKDIR /src
COPY --from=tool /usr/local/bin/payload /usr/local/bin/payload
COPY payload.yaml payload.lock LLAMA_CPP_VERSION ./
COPY cmake cmake
COPY llama llama
RUN --mount=type=cache,target=/root/.cache \
    payload doctor --fix --preset jetpack6 && payload build --preset jetpack6 --no-run

FROM scratch AS payload
COPY --from=build /src/dist/jetpack6/ /
