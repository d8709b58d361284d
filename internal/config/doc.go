// Package config turns environment variables into checked structs for the
// programs under cmd. It is the only reader of the environment.
//
// Every variable is a field with an env tag; its doc comment, unit, range and
// default are what config.example.env shows (go generate rewrites that file
// and a test compares it). Loading reports every problem at once, each with
// the variable and the remedy. An empty value means the default.
//
// A value that holds a secret may be given in a file instead: NAME_FILE names
// it, and one newline at its end is dropped. Secrets appear in no error, no
// String and no log value.
package config

//go:generate go test -run TestExampleFile -update .
