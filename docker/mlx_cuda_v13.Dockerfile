# The payload of the preset mlx_cuda_v13, and nothing else:
#   docker build --file docker/mlx_cuda_v13.Dockerfile --output type=local,dest=out .
# No GPU is needed to build it, and none is here: it is verified where one is.
FROM golang:1.26-bookworm AS tool
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmake cmake
COPY cmd cmd
COPY internal internal
RUN CGO_ENABLED=0 go build -o /usr/local/bin/payload ./cmd/payload

FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS build
WORKDIR /src
COPY --from=tool /usr/local/bin/payload /usr/local/bin/payload
COPY payload.yaml payload.lock MLX_VERSION MLX_C_VERSION ./
COPY cmake cmake
COPY mlx mlx
RUN --mount=type=cache,target=/root/.cache \
    payload doctor --fix --preset mlx_cuda_v13 && payload build --preset mlx_cuda_v13 --no-run

FROM scratch AS payload
COPY --from=build /src/dist/mlx_cuda_v13/ /
