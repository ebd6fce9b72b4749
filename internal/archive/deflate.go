package archive

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/pgzip"
	"github.com/sourcegraph/conc/stream"
)

// deflateLevel is the best that deflate has. Both libraries are modules of this
// program, so their versions are this program's.
const deflateLevel = 9

// gzipBlock is what one thread packs at a time. It is part of what decides the
// bytes of an archive.
const gzipBlock = 1 << 20

// WriteTarGzip writes path, or its parts, as a tar file packed with gzip. The
// folder exists; nothing is left of it after an error.
func WriteTarGzip(ctx context.Context, path string, items []Item, o Writing) (Written, error) {
	return write(path, o, func(w io.Writer) error {
		z, err := pgzip.NewWriterLevel(w, deflateLevel)
		if err != nil {
			return err
		}
		if err := z.SetConcurrency(gzipBlock, max(1, o.Threads)); err != nil {
			return err
		}
		if err := tarOf(ctx, z, items, o); err != nil {
			_ = z.Close() // ends its threads; what it wrote is deleted
			return err
		}
		return z.Close()
	})
}

// earliest is the first moment that a zip file can tell.
var earliest = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)

// WriteZip writes path, or its parts, as a zip file. Links are kept as macOS and
// Unix keep them; for Windows there must be none (see Follow). Files are packed
// side by side, each held in memory in its packed form until its turn.
func WriteZip(ctx context.Context, path string, items []Item, o Writing) (Written, error) {
	return write(path, o, func(w io.Writer) error {
		z := zip.NewWriter(w)
		m := newMeter(ctx, items, o)
		when := o.Time.UTC()
		if when.Before(earliest) {
			when = earliest
		}
		var failed error
		s := stream.New().WithMaxGoroutines(max(1, o.Threads))
		for _, item := range items {
			s.Go(func() stream.Callback {
				packed, crc, err := deflate(ctx, item)
				return func() { // one at a time, in the order of the items
					if failed == nil {
						failed = err
					}
					if failed == nil {
						failed = addZip(z, item, packed, crc, when)
					}
					if failed == nil {
						failed = m.add(item.Size)
					}
				}
			})
		}
		s.Wait()
		if failed != nil {
			return failed
		}
		return z.Close()
	})
}

func addZip(z *zip.Writer, item Item, packed []byte, crc uint32, when time.Time) error {
	h := &zip.FileHeader{Name: item.Name, Method: zip.Deflate, CRC32: crc, CompressedSize64: uint64(len(packed)), UncompressedSize64: uint64(item.Size)}
	mode := os.FileMode(0o644)
	switch {
	case item.Link != "":
		mode, h.Method, h.UncompressedSize64 = os.ModeSymlink|0o777, zip.Store, uint64(len(item.Link))
	case item.Executable:
		mode = 0o755
	}
	h.SetMode(mode)
	date(h, when)
	to, err := z.CreateRaw(h)
	if err != nil {
		return err
	}
	_, err = to.Write(packed)
	return err
}

// date writes a time, in UTC, into a header as CreateRaw takes it: CreateRaw
// leaves out what Modified says. There are MS-DOS's two numbers of two seconds,
// and the field "UT" of Info-ZIP's extrafld.txt, which does not depend on who
// unpacks it where.
func date(h *zip.FileHeader, when time.Time) {
	h.ModifiedDate = uint16(when.Day() + int(when.Month())<<5 + (when.Year()-1980)<<9) //nolint:staticcheck // see above
	h.ModifiedTime = uint16(when.Second()/2 + when.Minute()<<5 + when.Hour()<<11)      //nolint:staticcheck // see above

	const modified = 1 // the one time that is given
	h.Extra = binary.LittleEndian.AppendUint16(nil, 0x5455)
	h.Extra = binary.LittleEndian.AppendUint16(h.Extra, 5)
	h.Extra = binary.LittleEndian.AppendUint32(append(h.Extra, modified), uint32(when.Unix()))
}

// deflate packs one item; a link is its target as it is.
func deflate(ctx context.Context, item Item) ([]byte, uint32, error) {
	if item.Link != "" {
		return []byte(item.Link), crc32.ChecksumIEEE([]byte(item.Link)), nil
	}
	var packed bytes.Buffer
	f, err := flate.NewWriter(&packed, deflateLevel)
	if err != nil {
		return nil, 0, err
	}
	sum := crc32.NewIEEE()
	if err := (&meter{ctx: ctx}).copyFile(io.MultiWriter(f, sum), item); err != nil {
		return nil, 0, err
	}
	if err := f.Close(); err != nil {
		return nil, 0, err
	}
	return packed.Bytes(), sum.Sum32(), nil
}
