// Command heartbeat is the Lambda function of that name; see package shared/heartbeat for
// what it does.
package main

import "mirrorless/shared/function"

func main() { function.Start("heartbeat", function.Heartbeat) }
