package constrain

import "slices"

const (
	dateFormat = `(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))` +
		`|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)`
	// Without leap seconds, and with nine digits of a second at most.
	timeFormat = `(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)`
	octet      = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	ipv4Format = `(?:` + octet + `\.){3}` + octet
	label      = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,38}[A-Za-z0-9])?`
	atom       = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
)

// formats are the values of "format", as expressions of the whole string: the
// forms of RFC 3339, 9562, 2673 and 5321. Some of what those allow is left out.
// Times have no leap second. Mail addresses have no IPv6 literal and are shorter
// than they might be: 32 characters and the dots between them, four labels of 40.
var formats = map[string]string{
	"date":      dateFormat,
	"time":      timeFormat,
	"date-time": dateFormat + `[Tt]` + timeFormat,
	"uuid":      `[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`,
	"ipv4":      ipv4Format,
	"email":     `(?:` + atom + `(?:\.?` + atom + `){0,31}|"(?:[ !#-\[\]-~]|\\[ -~]){0,31}")@(?:` + label + `(?:\.` + label + `){0,3}|\[` + ipv4Format + `\])`,
}

func formatNames() []string {
	var names []string
	for name := range formats {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
