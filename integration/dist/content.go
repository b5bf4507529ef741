package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"strings"
)

// content returns the content of a file of a package. In a text "@BINDIR@" stands for the
// directory of the program.
func (f *file) content(bindir string) ([]byte, error) {
	text, err := os.ReadFile(f.source)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(f.source, ".service") {
		text = bytes.ReplaceAll(text, []byte("@BINDIR@"), []byte(bindir))
	}
	if !f.gzip {
		return text, nil
	}
	return compressed(text)
}

// compressed returns data compressed by gzip, with no name and no time in it.
func compressed(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}
