// Package mlx runs arrays on MLX.
//
// It owns what Go programs see of the library: loading it, arrays and their
// release, operations, closures, memory and files. It refuses to be built
// with cgo: the library is opened at run time and called through
// mlx/internal/c, which is generated from mlx-c's headers.
//
// # Scopes
//
// Operations are methods of a Scope, which holds the stream they run on, owns
// the arrays they make and keeps the first error:
//
//	s := mlx.NewScope(stream)
//	defer s.Close()
//	y := s.Softmax(s.Matmul(q, s.Transpose(k)), false, -1)
//	if err := s.Eval(y); err != nil {
//		return err // of the first operation that failed, with its shapes
//	}
//
// After an error the scope's operations do nothing and give nil, so a chain
// needs one look at the end: Eval, Values, Item and Close give the error, Err
// shows it. Close frees the arrays that the scope owns. Keep takes one out of
// it, to be freed by hand; Adopt moves one in; Sub makes a scope inside.
// Nothing is ever freed by the garbage collector.
//
// # Threads
//
// MLX evaluates an array only on the thread of the system for whose stream it
// was built. Package mlx/mlxthread holds a goroutine on one thread for that;
// a Scope is used by one goroutine at a time.
//
// # Laziness
//
// Operations build a graph; shapes and types are checked at once, values come
// into being in Eval. Freeing an array gives back a reference: what a graph
// still needs stays.
package mlx
