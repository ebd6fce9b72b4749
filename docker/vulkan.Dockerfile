# The payload of the preset vulkan, and nothing else:
#   docker build --file docker/vulkan.Dockerfile --output type=local,dest=out .
# No device is needed to build it, and none is here: it is verified where one is.
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
COPY payload.yaml payload.lock LLAMA_CPP_VERSION ./
COPY cmake cmake
COPY llama llama
RUN --mount=type=cache,target=/root/.cache \
    payload doctor --fix --preset vulkan && payload build --preset vulkan --no-run

FROM scratch AS payload
COPY --from=build /src/dist/vulkan/ /
