// Command checkpoint is the Lambda function of that name; see package shared/checkpoint for
// what it does.
package main

import "mirrorless/shared/function"

func main() { function.Start("checkpoint", function.Checkpoint) }
