package patch

import (
	"testing"
	"time"
)

func TestMessage(t *testing.T) {
	t.Parallel()
	m := parseMessage("0003-x.patch", `From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: "Dr. No" <no@example.com>
Date: Tue, 3 Feb 2026 04:05:06 +0100
Subject: [PATCH v2 3/7] [cpu] fold =?UTF-8?q?=C3=A4?=
 =?UTF-8?q?=C3=B6?= and more
MIME-Version: 1.0

First line.

A second
paragraph: not a trailer.

Upstream-Status: Inappropriate [only for our
  build]
Drop-When: commit 0123456789ab
---
 a.txt | 2 +-
`)
	if m.Name != "Dr. No" || m.Email != "no@example.com" || !m.Date.Equal(time.Date(2026, 2, 3, 3, 5, 6, 0, time.UTC)) {
		t.Errorf("author %q <%s> %v", m.Name, m.Email, m.Date)
	}
	if m.Subject != "[cpu] fold äö and more" {
		t.Errorf("subject %q", m.Subject)
	}
	if want := "First line.\n\nA second\nparagraph: not a trailer.\n\nUpstream-Status: Inappropriate [only for our\n  build]\nDrop-When: commit 0123456789ab"; m.Body != want {
		t.Errorf("body %q", m.Body)
	}
	if v, ok := m.Trailer("upstream-status"); !ok || v != "Inappropriate [only for our build]" {
		t.Errorf("trailer %q", v)
	}
	if m := parseMessage("0004-some_name-here.patch", "Prose.\n"); !m.Plain || m.Subject != "some name here" || m.Body != "Prose." {
		t.Errorf("plain: %+v", m)
	}
	sent := parseMessage("1.patch", "From: List <list@example.com>\nSubject: x\n\nFrom: Ada <ada@example.com>\n\nBody.\n")
	if sent.Email != "ada@example.com" || sent.Body != "Body." {
		t.Errorf("sent by another: %+v", sent)
	}
}

func TestTrailerValues(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]Status{
		"Pending":                         {Kind: "Pending"},
		"Submitted https://example.com/1": {Kind: "Submitted", Note: "https://example.com/1"},
		"Backport":                        {Kind: "Backport"},
		"Inappropriate [ours alone]":      {Kind: "Inappropriate", Note: "ours alone"},
		"Submitted":                       {},
		"Submitted yesterday":             {},
		"Inappropriate":                   {},
		"pending":                         {},
		"":                                {},
	} {
		got, err := ParseStatus(value)
		if got != want || (err == nil) != (want.Kind != "") {
			t.Errorf("%q: %+v, %v", value, got, err)
		}
	}
	for value, want := range map[string]Condition{
		"never":                        {Kind: "never"},
		"ref>=b11400":                  {Kind: "ref", Ref: "b11400"},
		"ref >= v1.2":                  {Kind: "ref", Ref: "v1.2"},
		"commit 0123456789":            {Kind: "commit", Commit: "0123456789"},
		"contains a/b.cpp static x = ": {Kind: "contains", Path: "a/b.cpp", Text: "static x ="},
		"contains a/b.cpp":             {},
		"contains ../b text":           {},
		"commit HEAD":                  {},
		"ref<b1":                       {},
		"":                             {},
	} {
		got, err := ParseCondition(value)
		if got != want || (err == nil) != (want.Kind != "") {
			t.Errorf("%q: %+v, %v", value, got, err)
		}
	}
}
