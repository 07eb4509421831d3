package ministack_test

import (
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"mirrorless/localstack/ministack/ministacktest"
)

func TestServerKeepsOffsetsExactly(t *testing.T) {
	server := ministacktest.Start(t)
	ctx := t.Context()
	client := dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String(server.Endpoint()),
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
	table := aws.String("positions")
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            table,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const offset = "9007199254740993" // 2^53+1: what a float64 would round
	item := map[string]types.AttributeValue{
		"pk":     &types.AttributeValueMemberS{Value: "orders"},
		"offset": &types.AttributeValueMemberN{Value: offset},
	}
	if _, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: table, Item: item}); err != nil {
		t.Fatal(err)
	}
	read, err := client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: table, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"pk": item["pk"]},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := read.Item["offset"].(*types.AttributeValueMemberN)
	if got == nil || got.Value != offset {
		t.Errorf("got offset %v, want %s", read.Item["offset"], offset)
	}
}

func TestCloseEndsTheServer(t *testing.T) {
	server := ministacktest.Start(t)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	response, err := http.Get(server.Endpoint())
	if err == nil {
		response.Body.Close()
		t.Errorf("got %s from a closed server, want no answer", response.Status)
	}
	if err := server.Close(); err != nil {
		t.Errorf("got %v from the second Close, want nil", err)
	}
}
