# The payload of the preset mlx_cpu, and nothing else:
#   docker build --file docker/mlx_cpu.Dockerfile --output type=local,dest=out .
# The libraries run where glibc is at least that of the image they were built on.
FROM golang:1.26-bookworm AS tool
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmake cmake
COPY cmd cmd
COPY internal internal
RUN CGO_ENABLED=0 go build -o /usr/local/bin/payload ./cmd/payload

FROM debian:bookworm AS build
WORKDIR /src
COPY --from=tool /usr/local/bin/payload /usr/local/bin/payload
COPY payload.yaml payload.lock MLX_VERSION MLX_C_VERSION ./
COPY cmake cmake
COPY mlx mlx
RUN --mount=type=cache,target=/root/.cache \
    payload doctor --fix --preset mlx_cpu && payload build --preset mlx_cpu

FROM scratch AS payload
COPY --from=build /src/dist/mlx_cpu/ /
