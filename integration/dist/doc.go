// Command dist builds the files of a release of rootsfs, and installs rootsfs.
//
//	go run ./integration/dist -out DIRECTORY
//	go run ./integration/dist -install DESTDIR -prefix PREFIX
//
// One file, dist.toml, lists the files of a release and their places in each kind of package, and
// has the texts that describe rootsfs in the packages.
//
// # Promises
//
//   - A release of one commit is the same, byte for byte, wherever and whenever it is
//     built with the same Go release: times are the commit's, paths are cut away.
//   - Programs are linked statically and need no other package to start.
//   - Removing a package removes all that installing it made.
//   - Each MCP bundle (.mcpb) and each npm package for one architecture contains the program. No
//     script of a bundle or of any npm package downloads a program.
//   - SHA256SUMS names every other file of the release.
//
// # Not promised
//
// Packages are not signed, and nothing is published. Lines of dist.toml marked OWNER are
// placeholders until an owner has checked them.
package main
