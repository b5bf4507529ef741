package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

// get prints the content of a URL, fetched as a Go program with net/http does.
func get(url string) int {
	resp, err := http.Get(url)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.Copy(os.Stdout, resp.Body)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}
