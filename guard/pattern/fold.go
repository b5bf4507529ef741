package pattern

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Fold maps all names that a file system could take for the same file to one name:
// case, Unicode forms, marks, invisible characters, and dots and spaces at the end make no
// difference. It is coarser than any file system we know (ext4 and f2fs with casefold,
// APFS, HFS+, FAT, NTFS, SMB), so that two names of one file there are one name here. In a
// name that is not UTF-8, only the parts that are UTF-8 are folded.
func Fold(name string) string {
	// Windows and its file systems drop dots and spaces at the end. A name that has nothing
	// else stays.
	if t := strings.TrimRight(foldText(name), ". "); t != "" {
		return t
	}
	return name
}

// foldText is Fold for a part of a name.
func foldText(s string) string {
	if ascii(s) {
		return strings.ToLower(s)
	}
	s = cases.Fold().String(norm.NFD.String(s))
	s = norm.NFD.String(s)
	return strings.Map(func(r rune) rune {
		switch {
		case r == 'ı': // upper-cased to I by some tables
			return 'i'
		case r == utf8.RuneError:
			return r
		case unicode.In(r, unicode.Mn, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
			return -1
		}
		return r
	}, s)
}

// ascii reports whether s is ASCII. Folding such a text only changes the case of letters.
func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Plain reports whether folding changes only dots and spaces at the end, as for most names.
func Plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// Suspicious reports whether a name could be another spelling of a file's name that Fold does
// not cover: the short names of FAT and NTFS (SECRET~1), streams (a:b), characters beyond
// ASCII.
func Suspicious(name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || c == '~' || c == ':' || c < ' ' {
			return true
		}
	}
	return false
}
