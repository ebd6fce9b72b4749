package pin

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"

	"payload/internal/config"
)

var (
	buildRef    = regexp.MustCompile(`^b([0-9]{1,9})$`)
	versionRef  = regexp.MustCompile(`^v?[0-9]+(\.[0-9]+)*([-+][0-9A-Za-z.+-]+)?$`)
	anyHex      = regexp.MustCompile(`^[0-9a-fA-F]+$`)
	allowedRef  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/+@=-]*$`)
	shortestHex = 7 // what git abbreviates to at least
)

// Read returns the ref in the component's pin file. The file holds one line.
func Read(f *config.File, c config.Component) (string, error) {
	data, err := os.ReadFile(f.Abs(c.Pin))
	if err != nil {
		return "", fmt.Errorf("reading the pin of %s: %w", c.Name, err)
	}
	ref := strings.TrimSpace(strings.TrimPrefix(string(data), "\ufeff"))
	if strings.ContainsAny(ref, "\r\n") {
		return "", fmt.Errorf("reading the pin of %s: %s holds several lines; it must hold one ref alone", c.Name, c.Pin)
	}
	if err := CheckRef(ref); err != nil {
		return "", fmt.Errorf("reading the pin of %s: %s: %w", c.Name, c.Pin, err)
	}
	return ref, nil
}

// CheckRef says why a text can't be a pin: a tag, a branch or a full commit.
func CheckRef(ref string) error {
	switch {
	case ref == "":
		return fmt.Errorf("is empty; it must hold a tag, a branch or a full commit")
	case strings.ContainsAny(ref, " \t\r\n"):
		return fmt.Errorf("%q holds spaces; one ref alone is wanted", ref)
	case anyHex.MatchString(ref) && len(ref) >= shortestHex && !config.IsObjectID(ref):
		return fmt.Errorf("%q looks like an abbreviated commit; give all 40 digits in lower case, or a tag", ref)
	case !allowedRef.MatchString(ref), strings.Contains(ref, ".."), strings.Contains(ref, "@{"),
		strings.Contains(ref, "//"), strings.HasSuffix(ref, "/"), strings.HasSuffix(ref, "."), strings.HasSuffix(ref, ".lock"):
		return fmt.Errorf("%q is not a name that git allows for a tag or a branch", ref)
	}
	return nil
}

// BuildNumber is the number of a build tag: 11312 for b11312, 0 for others.
func BuildNumber(ref string) int {
	m := buildRef.FindStringSubmatch(ref)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil { // nine digits at most always fit
		return 0
	}
	return n
}

var digits = regexp.MustCompile(`[0-9]+`)

// family names the kinds of refs that Compare orders among themselves: build
// tags, versions, and other names that differ in their numbers alone.
func family(ref string) string {
	switch {
	case buildRef.MatchString(ref):
		return "0"
	case versionRef.MatchString(ref):
		return "1"
	case config.IsObjectID(ref):
		return "3" // its digits count nothing
	}
	return "2" + digits.ReplaceAllString(ref, "#")
}

// Compare orders two refs of one family, as cmp.Compare does: build tags and
// names of one form by number, versions by precedence. ok is false where only
// commits could tell.
func Compare(a, b string) (order int, ok bool) {
	if a == b {
		return 0, true
	}
	return nameOf(a).compare(nameOf(b))
}

// name is a ref taken apart, for comparing it with others of its family.
type name struct {
	family  string
	numbers []string
	version *version.Version // nil but for versions
}

func nameOf(ref string) name {
	n := name{family: family(ref)}
	switch n.family {
	case "1":
		n.version, _ = version.NewVersion(ref) // nil where it has none that can be compared
	case "3":
	default:
		n.numbers = digits.FindAllString(ref, -1)
	}
	return n
}

func (n name) compare(o name) (order int, ok bool) {
	switch {
	case n.family != o.family:
		return 0, false
	case n.version != nil && o.version != nil:
		return n.version.Compare(o.version), true
	case n.numbers == nil || o.numbers == nil:
		return 0, false
	}
	return slices.CompareFunc(n.numbers, o.numbers, compareNumbers), true
}

// compareNumbers orders digits of any length as numbers.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// lastNumber is the last number in a ref; 0 without any.
func lastNumber(ref string) int {
	all := digits.FindAllString(ref, -1)
	if len(all) == 0 {
		return 0
	}
	n, err := strconv.Atoi(all[len(all)-1])
	if err != nil { // more digits than a version has
		return 0
	}
	return n
}
