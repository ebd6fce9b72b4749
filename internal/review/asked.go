package review

import "context"

// Answers TODO
type Answers struct{}

// Ask TODO
func Ask(context.Context, string, func(string, ...any)) (*Answers, error) { return nil, nil }
