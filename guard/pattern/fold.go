package pattern

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Fold maps all spellings of a name that a file system could take for the same name to one name:
// case, Unicode forms, marks, invisible characters, and dots and spaces at the end make no
// difference. It is coarser than any file system we know (ext4 and f2fs with casefold,
// APFS, HFS+, FAT, NTFS, SMB). Fold does not cover short names (SECRET~1) and streams (a:b): see
// Suspicious. If a name has a byte that is not UTF-8, the byte becomes U+FFFD.
func Fold(name string) string {
	// Windows and its file systems drop dots and spaces at the end. A name that has nothing
	// else stays.
	if t := strings.TrimRight(foldText(name), ". "); t != "" {
		return t
	}
	return name
}

// foldText is Fold for a part of a name: it does not drop dots and spaces at the end.
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

// ascii reports whether s is ASCII. foldText changes only the case of letters in such a text.
func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Plain reports whether s is ASCII without capital letters, as most names are. Fold changes at most
// dots and spaces at the end of such a name.
func Plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// Suspicious reports whether a name could be another spelling of a file's name that Fold does
// not cover. It does so if the name has one of these:
//   - "~", as the short names of FAT and NTFS have (SECRET~1)
//   - ":", as streams have (a:b)
//   - a control character
//   - a character beyond ASCII
func Suspicious(name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || c == '~' || c == ':' || c < ' ' {
			return true
		}
	}
	return false
}
