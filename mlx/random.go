package mlx

import "payload/mlx/internal/c"

// Random numbers. The same key gives the same numbers, on every machine; a nil
// key takes MLX's own of the process, which Seed sets.

// Seed sets the key of the process.
func Seed(seed uint64) error {
	if err := Load(); err != nil {
		return err
	}
	return wrap("Seed", c.RandomSeed(seed))
}

// Key makes a key out of a seed.
func (s *Scope) Key(seed uint64) *Array {
	if !s.ready("Key") {
		return nil
	}
	s.out = 0
	return s.took("Key", c.RandomKey(&s.out, seed))
}

// SplitKey makes n keys out of one: [n, 2].
func (s *Scope) SplitKey(key *Array, n int) *Array {
	return s.onAxis("SplitKey", c.RandomSplitNum, key, n)
}

// Uniform gives numbers between low and high.
func (s *Scope) Uniform(d Dtype, low, high float64, key *Array, shape ...int) *Array {
	return s.between("Uniform", c.RandomUniform, d, low, high, key, shape)
}

// TruncatedNormal gives normal numbers between low and high.
func (s *Scope) TruncatedNormal(d Dtype, low, high float64, key *Array, shape ...int) *Array {
	return s.between("TruncatedNormal", c.RandomTruncatedNormal, d, low, high, key, shape)
}

// RandInt gives whole numbers from low to before high.
func (s *Scope) RandInt(d Dtype, low, high int, key *Array, shape ...int) *Array {
	return s.between("RandInt", c.RandomRandint, d, float64(low), float64(high), key, shape)
}

func (s *Scope) between(op string, f func(*c.Array, c.Array, c.Array, []int32, c.Dtype, c.Array, c.Stream) error,
	d Dtype, low, high float64, key *Array, shape []int,
) *Array {
	from, to := s.Scalar(low, d), s.Scalar(high, d)
	if !s.ready(op, from, to) {
		return nil
	}
	defer from.Free()
	defer to.Free()
	s.out = 0
	return s.took(op, f(&s.out, from.h, to.h, narrow(nil, shape), c.Dtype(d), orZero(key), s.stream.h))
}

// Normal gives numbers of a mean and a deviation.
func (s *Scope) Normal(d Dtype, mean, deviation float32, key *Array, shape ...int) *Array {
	if !s.ready("Normal") {
		return nil
	}
	s.out = 0
	return s.took("Normal", c.RandomNormal(&s.out, narrow(nil, shape), c.Dtype(d), mean, deviation, orZero(key), s.stream.h))
}

// Gumbel gives numbers of the standard Gumbel distribution.
func (s *Scope) Gumbel(d Dtype, key *Array, shape ...int) *Array {
	if !s.ready("Gumbel") {
		return nil
	}
	s.out = 0
	return s.took("Gumbel", c.RandomGumbel(&s.out, narrow(nil, shape), c.Dtype(d), orZero(key), s.stream.h))
}

// Bernoulli gives true with probability p, which is broadcast to shape.
func (s *Scope) Bernoulli(p, key *Array, shape ...int) *Array {
	if !s.ready("Bernoulli", p) {
		return nil
	}
	s.out = 0
	return s.took("Bernoulli", c.RandomBernoulli(&s.out, p.h, narrow(nil, shape), orZero(key), s.stream.h), p)
}

// Categorical draws an index along an axis, by unnormalised logarithms of
// probabilities.
func (s *Scope) Categorical(logits *Array, axis int, key *Array) *Array {
	if !s.ready("Categorical", logits) {
		return nil
	}
	s.out = 0
	return s.took("Categorical", c.RandomCategorical(&s.out, logits.h, int32(axis), orZero(key), s.stream.h), logits)
}

// Permutation shuffles along an axis.
func (s *Scope) Permutation(a *Array, axis int, key *Array) *Array {
	if !s.ready("Permutation", a) {
		return nil
	}
	s.out = 0
	return s.took("Permutation", c.RandomPermutation(&s.out, a.h, int32(axis), orZero(key), s.stream.h), a)
}
