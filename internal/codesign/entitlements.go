package codesign

import (
	"bytes"
	"encoding/asn1"
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
)

// Entitlements are what a program may do under the hardened runtime: by key a
// bool, a string, a whole number or a list of strings.
type Entitlements map[string]any

// XML is the property list that codesign takes and older systems read.
func (e Entitlements) XML() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
`)
	tag := func(name, text string) {
		b.WriteString("<" + name + ">")
		_ = xml.EscapeText(&b, []byte(text)) // a buffer takes everything
		b.WriteString("</" + name + ">\n")
	}
	for _, key := range slices.Sorted(maps.Keys(e)) {
		tag("key", key)
		switch v := e[key].(type) {
		case bool:
			fmt.Fprintf(&b, "<%t/>\n", v)
		case string:
			tag("string", v)
		case int, int64, uint64:
			tag("integer", fmt.Sprint(v))
		case []any:
			b.WriteString("<array>\n")
			for _, item := range v {
				text, ok := item.(string)
				if !ok {
					return nil, badEntitlement(key)
				}
				tag("string", text)
			}
			b.WriteString("</array>\n")
		default:
			return nil, badEntitlement(key)
		}
	}
	b.WriteString("</dict>\n</plist>\n")
	return b.Bytes(), nil
}

func badEntitlement(key string) error {
	return fmt.Errorf("the entitlement %s is neither a bool, a string, a whole number nor a list of strings", key)
}

// der is the second form, which macOS 12 and later go by: an application-16
// element with a version and a context-16 list of (key, value), sorted by key.
func (e Entitlements) der() ([]byte, error) {
	var pairs []byte
	for _, key := range slices.Sorted(maps.Keys(e)) {
		value, err := derValue(key, e[key])
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, element(asn1.ClassUniversal, asn1.TagSequence, true, append(text(key), value...))...)
	}
	version := element(asn1.ClassUniversal, asn1.TagInteger, false, []byte{1})
	return element(asn1.ClassApplication, 16, true, append(version, element(asn1.ClassContextSpecific, 16, true, pairs)...)), nil
}

func derValue(key string, value any) ([]byte, error) {
	switch v := value.(type) {
	case bool:
		return asn1.Marshal(v)
	case string:
		return text(v), nil
	case int:
		return asn1.Marshal(v)
	case int64:
		return asn1.Marshal(v)
	case uint64:
		return asn1.Marshal(int64(v))
	case []any:
		var items []byte
		for _, item := range v {
			s, ok := item.(string)
			if !ok {
				return nil, badEntitlement(key)
			}
			items = append(items, text(s)...)
		}
		return element(asn1.ClassUniversal, asn1.TagSequence, true, items), nil
	}
	return nil, badEntitlement(key)
}

func text(s string) []byte { return element(asn1.ClassUniversal, asn1.TagUTF8String, false, []byte(s)) }

func element(class, tag int, compound bool, content []byte) []byte {
	b, _ := asn1.Marshal(asn1.RawValue{Class: class, Tag: tag, IsCompound: compound, Bytes: content}) // bytes always can be
	return b
}
