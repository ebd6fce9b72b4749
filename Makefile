.PHONY: build test lint fmt golden bench ci pr
build: ; scripts/build
test:  ; scripts/test
lint:  ; scripts/lint
fmt:   ; go tool -modfile=tools/go.mod golangci-lint fmt
golden: ; go test ./... -update
bench: ; scripts/bench
ci:    ; .ci/run
pr:    ; scripts/ci
