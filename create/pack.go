package create

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"payload/fs/safetensors"
	"payload/mlx"
	"payload/mlx/quant"
)

// piece is how many weights are in memory at once, as float32.
const piece = 4 << 20

// write reads a tensor piece by piece and writes what becomes of it.
func (it item) write(ctx context.Context, w *safetensors.Writer, s *mlx.Scope, wrote func(int64)) error {
	columns := it.columns()
	rows := it.size() / columns
	step := min(rows, max(1, piece/columns))
	buffer := make([]float32, step*columns)
	for row := int64(0); row < rows; row += step {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped at the tensor %s: %w", it.name, err)
		}
		values := buffer[:min(step, rows-row)*columns]
		if err := it.read(row, values); err != nil {
			return err
		}
		if i := firstOdd(values); i >= 0 {
			return fmt.Errorf("the tensor %s holds %v in row %d: the source is damaged", it.name, values[i], row+int64(i)/columns)
		}
		parts, err := it.pack(s, values, columns)
		if err != nil {
			return fmt.Errorf("converting the tensor %s: %w", it.name, err)
		}
		for i, bytes := range parts {
			if _, err := w.To(it.parts[i].Name).Write(bytes); err != nil {
				return err
			}
			wrote(int64(len(bytes)))
		}
	}
	return nil
}

// firstOdd finds what no weight is.
func firstOdd(values []float32) int {
	for i, v := range values {
		if v-v != 0 { // an infinity, or not a number
			return i
		}
	}
	return -1
}

// pack gives the bytes of each part for rows of the tensor.
func (it item) pack(s *mlx.Scope, values []float32, columns int64) ([][]byte, error) {
	if it.plain == safetensors.F16 {
		for _, v := range values {
			if math.Abs(float64(v)) >= 65520 {
				return nil, fmt.Errorf("%v is more than float16 holds", v)
			}
		}
	}
	if it.how == (quant.Params{}) {
		return [][]byte{encode(values, it.plain)}, nil
	}
	sub := s.Sub()
	out, err := it.quantise(sub, values, columns)
	if closed := sub.Close(); err == nil {
		err = closed
	}
	return out, err
}

// quantise packs rows as MLX does, after they took their plain type: so does
// the reference converter.
func (it item) quantise(s *mlx.Scope, values []float32, columns int64) ([][]byte, error) {
	rows := len(values) / int(columns)
	q := s.Quantize(s.AsType(mlx.New(s, values, rows, int(columns)), dtypes[it.plain]), it.how)
	words, err := mlx.Values[uint32](s, q.Weights)
	if err != nil {
		return nil, err
	}
	packed := make([]byte, 0, 4*len(words))
	for _, word := range words {
		packed = binary.LittleEndian.AppendUint32(packed, word)
	}
	out := [][]byte{packed}
	if !it.how.HasBiases() {
		scales, err := mlx.Values[uint8](s, q.Scales)
		return append(out, scales), err
	}
	for _, a := range []*mlx.Array{q.Scales, q.Biases} {
		floats, err := mlx.Floats(s, a) // nothing is lost on the way back
		if err != nil {
			return nil, err
		}
		out = append(out, encode(floats, it.plain))
	}
	return out, nil
}

var dtypes = map[safetensors.DType]mlx.Dtype{safetensors.F32: mlx.Float32, safetensors.F16: mlx.Float16, safetensors.BF16: mlx.BFloat16}

// encode gives values as they stand in a file, rounded to the nearest.
func encode(values []float32, d safetensors.DType) []byte {
	out := make([]byte, int64(len(values))*d.Bits()/8)
	for i, v := range values {
		switch d {
		case safetensors.F16:
			binary.LittleEndian.PutUint16(out[2*i:], uint16(mlx.F16Of(v)))
		case safetensors.BF16:
			binary.LittleEndian.PutUint16(out[2*i:], uint16(mlx.BF16Of(v)))
		default:
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(v))
		}
	}
	return out
}

// decode fills into with values of a file.
func decode(into []float32, bytes []byte, d safetensors.DType) {
	for i := range into {
		switch d {
		case safetensors.F16:
			into[i] = half(bytes[2*i:])
		case safetensors.BF16:
			into[i] = mlx.BF16(binary.LittleEndian.Uint16(bytes[2*i:])).Float32()
		default:
			into[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
		}
	}
}
