package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// shifts are the units of ParseSize.
var shifts = map[string]uint{
	"": 0, "B": 0,
	"K": 10, "KB": 10, "KIB": 10,
	"M": 20, "MB": 20, "MIB": 20,
	"G": 30, "GB": 30, "GIB": 30,
	"T": 40, "TB": 40, "TIB": 40,
}

// ParseSize reads a number of bytes: "1048576", "1024K", "1M", "1MiB", "1MB".
// The units K, M, G and T are powers of 1024, in either case. Negative numbers,
// fractions and what does not fit 63 bits are errors.
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	shift, known := shifts[strings.ToUpper(s[len(digits):])]
	n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
	if err != nil || !known {
		return 0, &names.Error{Kind: names.Invalid, Err: fmt.Errorf(
			"size %s: write a number of bytes, or one with K, M, G or T, as in 10M", names.Quote(s))}
	}
	if n > math.MaxInt64>>shift {
		return 0, &names.Error{Kind: names.Invalid, Err: fmt.Errorf(
			"size %s is beyond the limit of 8388607T", names.Quote(s))}
	}
	return int64(n) << shift, nil
}

// FormatSize shows a number of bytes, not negative, to two figures or more: "1.5K".
// The units are those of ParseSize, and P and E.
func FormatSize(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	f, u := float64(n)/1024, 0
	for f >= 1024 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + units[u:u+1]
}
