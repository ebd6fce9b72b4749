// Command mlxrunner runs language models on the MLX of a payload. Each verb
// has a file of its own here, which holds flags and printing only.
package main

import "os"

func main() { os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
