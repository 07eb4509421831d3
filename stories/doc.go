// Package stories holds the tests that tell what a user sees: real Kafka
// clusters, the functions as the bootstrap binaries that are deployed, state in
// a DynamoDB emulator, and Kafka's own tools to check with.
//
// They are skipped by a plain "go test ./..."; "make test" runs them where Java,
// Maven and Python are found. "make test FULL=1" runs them in full length, for
// those that are shorter otherwise. Package realtest has the rules.
package stories
