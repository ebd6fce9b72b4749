package machofile

import "os"

// File is an open file and the images that it holds. Close it.
type File struct {
	*os.File
	Slices []Slice // none where it isn't Mach-O
}

// SlicesError is a universal file whose table of images can't be followed.
type SlicesError struct{ Err error }

func (e *SlicesError) Error() string { return e.Err.Error() }
func (e *SlicesError) Unwrap() error { return e.Err }

// Open opens a file of any kind and looks for images in it. The error is a
// *SlicesError, or the system's.
func Open(file string) (*File, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // only opened
		return nil, err
	}
	list, err := Slices(f, info.Size())
	if err != nil {
		_ = f.Close() // only read
		return nil, &SlicesError{err}
	}
	return &File{f, list}, nil
}
