package mlx

import "payload/mlx/internal/c"

// Operations on elements. Shapes are broadcast as NumPy does; types are joined
// to one that holds both (a scalar of Like keeps the type).

func (s *Scope) unary(op string, f func(*c.Array, c.Array, c.Stream) error, a *Array) *Array {
	if !s.ready(op, a) {
		return nil
	}
	s.out = 0
	return s.took(op, f(&s.out, a.h, s.stream.h), a)
}

func (s *Scope) binary(op string, f func(*c.Array, c.Array, c.Array, c.Stream) error, a, b *Array) *Array {
	if !s.ready(op, a, b) {
		return nil
	}
	s.out = 0
	return s.took(op, f(&s.out, a.h, b.h, s.stream.h), a, b)
}

// Abs gives absolute values.
func (s *Scope) Abs(a *Array) *Array { return s.unary("Abs", c.Abs, a) }

// ArcCos gives inverse cosines.
func (s *Scope) ArcCos(a *Array) *Array { return s.unary("ArcCos", c.Arccos, a) }

// ArcSin gives inverse sines.
func (s *Scope) ArcSin(a *Array) *Array { return s.unary("ArcSin", c.Arcsin, a) }

// ArcTan gives inverse tangents.
func (s *Scope) ArcTan(a *Array) *Array { return s.unary("ArcTan", c.Arctan, a) }

// BitwiseInvert inverts bits.
func (s *Scope) BitwiseInvert(a *Array) *Array { return s.unary("BitwiseInvert", c.BitwiseInvert, a) }

// Ceil rounds up.
func (s *Scope) Ceil(a *Array) *Array { return s.unary("Ceil", c.Ceil, a) }

// Conjugate gives complex conjugates.
func (s *Scope) Conjugate(a *Array) *Array { return s.unary("Conjugate", c.Conjugate, a) }

// Copy copies.
func (s *Scope) Copy(a *Array) *Array { return s.unary("Copy", c.Copy, a) }

// Cos gives cosines, of radians.
func (s *Scope) Cos(a *Array) *Array { return s.unary("Cos", c.Cos, a) }

// Cosh gives hyperbolic cosines.
func (s *Scope) Cosh(a *Array) *Array { return s.unary("Cosh", c.Cosh, a) }

// Erf gives the error function.
func (s *Scope) Erf(a *Array) *Array { return s.unary("Erf", c.Erf, a) }

// ErfInv gives the inverse of Erf.
func (s *Scope) ErfInv(a *Array) *Array { return s.unary("ErfInv", c.Erfinv, a) }

// Exp gives powers of e.
func (s *Scope) Exp(a *Array) *Array { return s.unary("Exp", c.Exp, a) }

// Expm1 gives Exp(a)-1, exact near 0.
func (s *Scope) Expm1(a *Array) *Array { return s.unary("Expm1", c.Expm1, a) }

// Floor rounds down.
func (s *Scope) Floor(a *Array) *Array { return s.unary("Floor", c.Floor, a) }

// Imag gives imaginary parts.
func (s *Scope) Imag(a *Array) *Array { return s.unary("Imag", c.Imag, a) }

// IsFinite tells which elements are numbers and finite.
func (s *Scope) IsFinite(a *Array) *Array { return s.unary("IsFinite", c.Isfinite, a) }

// IsInf tells which elements are infinite.
func (s *Scope) IsInf(a *Array) *Array { return s.unary("IsInf", c.Isinf, a) }

// IsNaN tells which elements are no numbers.
func (s *Scope) IsNaN(a *Array) *Array { return s.unary("IsNaN", c.Isnan, a) }

// Log gives natural logarithms.
func (s *Scope) Log(a *Array) *Array { return s.unary("Log", c.Log, a) }

// Log10 gives logarithms to base 10.
func (s *Scope) Log10(a *Array) *Array { return s.unary("Log10", c.Log10, a) }

// Log1p gives Log(1+a), exact near 0.
func (s *Scope) Log1p(a *Array) *Array { return s.unary("Log1p", c.Log1p, a) }

// Log2 gives logarithms to base 2.
func (s *Scope) Log2(a *Array) *Array { return s.unary("Log2", c.Log2, a) }

// LogicalNot inverts truth.
func (s *Scope) LogicalNot(a *Array) *Array { return s.unary("LogicalNot", c.LogicalNot, a) }

// Negative changes signs.
func (s *Scope) Negative(a *Array) *Array { return s.unary("Negative", c.Negative, a) }

// OnesLike gives ones of a's shape and type.
func (s *Scope) OnesLike(a *Array) *Array { return s.unary("OnesLike", c.OnesLike, a) }

// Real gives real parts.
func (s *Scope) Real(a *Array) *Array { return s.unary("Real", c.Real, a) }

// Reciprocal gives 1/a.
func (s *Scope) Reciprocal(a *Array) *Array { return s.unary("Reciprocal", c.Reciprocal, a) }

// Rsqrt gives 1/Sqrt(a).
func (s *Scope) Rsqrt(a *Array) *Array { return s.unary("Rsqrt", c.Rsqrt, a) }

// Sigmoid gives 1/(1+Exp(-a)).
func (s *Scope) Sigmoid(a *Array) *Array { return s.unary("Sigmoid", c.Sigmoid, a) }

// Sign gives -1, 0 or 1.
func (s *Scope) Sign(a *Array) *Array { return s.unary("Sign", c.Sign, a) }

// Sin gives sines, of radians.
func (s *Scope) Sin(a *Array) *Array { return s.unary("Sin", c.Sin, a) }

// Sinh gives hyperbolic sines.
func (s *Scope) Sinh(a *Array) *Array { return s.unary("Sinh", c.Sinh, a) }

// Sqrt gives square roots.
func (s *Scope) Sqrt(a *Array) *Array { return s.unary("Sqrt", c.Sqrt, a) }

// Square gives a*a.
func (s *Scope) Square(a *Array) *Array { return s.unary("Square", c.Square, a) }

// StopGradient gives a, through which no gradient flows.
func (s *Scope) StopGradient(a *Array) *Array { return s.unary("StopGradient", c.StopGradient, a) }

// Tan gives tangents, of radians.
func (s *Scope) Tan(a *Array) *Array { return s.unary("Tan", c.Tan, a) }

// Tanh gives hyperbolic tangents.
func (s *Scope) Tanh(a *Array) *Array { return s.unary("Tanh", c.Tanh, a) }

// Trunc rounds towards 0.
func (s *Scope) Trunc(a *Array) *Array { return s.unary("Trunc", c.Trunc, a) }

// ZerosLike gives zeros of a's shape and type.
func (s *Scope) ZerosLike(a *Array) *Array { return s.unary("ZerosLike", c.ZerosLike, a) }

// Add gives a+b.
func (s *Scope) Add(a, b *Array) *Array { return s.binary("Add", c.Add, a, b) }

// ArcTan2 gives the angle of the point (b, a).
func (s *Scope) ArcTan2(a, b *Array) *Array { return s.binary("ArcTan2", c.Arctan2, a, b) }

// BitwiseAnd joins bits.
func (s *Scope) BitwiseAnd(a, b *Array) *Array { return s.binary("BitwiseAnd", c.BitwiseAnd, a, b) }

// BitwiseOr joins bits.
func (s *Scope) BitwiseOr(a, b *Array) *Array { return s.binary("BitwiseOr", c.BitwiseOr, a, b) }

// BitwiseXor joins bits.
func (s *Scope) BitwiseXor(a, b *Array) *Array { return s.binary("BitwiseXor", c.BitwiseXor, a, b) }

// Divide gives a/b.
func (s *Scope) Divide(a, b *Array) *Array { return s.binary("Divide", c.Divide, a, b) }

// Equal compares elements.
func (s *Scope) Equal(a, b *Array) *Array { return s.binary("Equal", c.Equal, a, b) }

// FloorDivide gives a/b rounded down.
func (s *Scope) FloorDivide(a, b *Array) *Array { return s.binary("FloorDivide", c.FloorDivide, a, b) }

// Greater compares elements.
func (s *Scope) Greater(a, b *Array) *Array { return s.binary("Greater", c.Greater, a, b) }

// GreaterEqual compares elements.
func (s *Scope) GreaterEqual(a, b *Array) *Array {
	return s.binary("GreaterEqual", c.GreaterEqual, a, b)
}

// Inner gives products over the last axis of both.
func (s *Scope) Inner(a, b *Array) *Array { return s.binary("Inner", c.Inner, a, b) }

// Kron gives the Kronecker product.
func (s *Scope) Kron(a, b *Array) *Array { return s.binary("Kron", c.Kron, a, b) }

// LeftShift shifts bits.
func (s *Scope) LeftShift(a, b *Array) *Array { return s.binary("LeftShift", c.LeftShift, a, b) }

// Less compares elements.
func (s *Scope) Less(a, b *Array) *Array { return s.binary("Less", c.Less, a, b) }

// LessEqual compares elements.
func (s *Scope) LessEqual(a, b *Array) *Array { return s.binary("LessEqual", c.LessEqual, a, b) }

// LogAddExp gives Log(Exp(a)+Exp(b)).
func (s *Scope) LogAddExp(a, b *Array) *Array { return s.binary("LogAddExp", c.Logaddexp, a, b) }

// LogicalAnd joins truth.
func (s *Scope) LogicalAnd(a, b *Array) *Array { return s.binary("LogicalAnd", c.LogicalAnd, a, b) }

// LogicalOr joins truth.
func (s *Scope) LogicalOr(a, b *Array) *Array { return s.binary("LogicalOr", c.LogicalOr, a, b) }

// Matmul multiplies matrices: [..., n, k] by [..., k, m]; other axes are broadcast.
func (s *Scope) Matmul(a, b *Array) *Array { return s.binary("Matmul", c.Matmul, a, b) }

// Maximum gives the larger elements.
func (s *Scope) Maximum(a, b *Array) *Array { return s.binary("Maximum", c.Maximum, a, b) }

// Minimum gives the smaller elements.
func (s *Scope) Minimum(a, b *Array) *Array { return s.binary("Minimum", c.Minimum, a, b) }

// Multiply gives a*b.
func (s *Scope) Multiply(a, b *Array) *Array { return s.binary("Multiply", c.Multiply, a, b) }

// NotEqual compares elements.
func (s *Scope) NotEqual(a, b *Array) *Array { return s.binary("NotEqual", c.NotEqual, a, b) }

// Outer gives the product of every pair of two vectors.
func (s *Scope) Outer(a, b *Array) *Array { return s.binary("Outer", c.Outer, a, b) }

// Power gives a to the b.
func (s *Scope) Power(a, b *Array) *Array { return s.binary("Power", c.Power, a, b) }

// Remainder gives what FloorDivide leaves, of b's sign.
func (s *Scope) Remainder(a, b *Array) *Array { return s.binary("Remainder", c.Remainder, a, b) }

// RightShift shifts bits.
func (s *Scope) RightShift(a, b *Array) *Array { return s.binary("RightShift", c.RightShift, a, b) }

// Subtract gives a-b.
func (s *Scope) Subtract(a, b *Array) *Array { return s.binary("Subtract", c.Subtract, a, b) }
