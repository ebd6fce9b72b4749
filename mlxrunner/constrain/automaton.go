package constrain

// A Vocabulary is the bytes of every token.
type Vocabulary struct{}

// NewVocabulary makes one of tokens by id, nil where a token never is part of a
// text (special ones), and the ids that end a text.
func NewVocabulary(tokens [][]byte, end []int) *Vocabulary { return &Vocabulary{} }

// An Automaton is a grammar over a vocabulary. It may be used by any number of
// goroutines.
type Automaton struct{}

// Bind makes the automaton of a grammar over a vocabulary.
func (g *Grammar) Bind(v *Vocabulary) *Automaton { return &Automaton{} }

// A State is what was read so far. It does not change, so keeping one is all
// it takes to come back to it.
type State struct{}

// Start is before the first token.
func (a *Automaton) Start() *State { return &State{} }

// Next is the state after a token, nil where the token may not come. After an
// id that ends a text, which may come where the state is Final, nothing may.
func (a *Automaton) Next(s *State, id int) *State { return nil }

// Allowed writes for each id whether it may come next, false for ids that the
// vocabulary lacks. It tells whether any may.
func (a *Automaton) Allowed(s *State, allowed []bool) bool { return false }

// Final tells whether the text may end here.
func (s *State) Final() bool { return false }

// Complete tells whether the text must end here: nothing may follow.
func (s *State) Complete() bool { return false }
