package target

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/batch"
)

// Compression returns the Compressor for a value of Kafka's producer setting
// compression.type: none, gzip, snappy, lz4 or zstd. It is nil for none and for
// "", as Kafka's default is none. The codecs are franz-go's.
func Compression(name string) (batch.Compressor, error) {
	var codec kgo.CompressionCodec
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "", "none":
		return nil, nil
	case "gzip":
		codec = kgo.GzipCompression()
	case "snappy":
		codec = kgo.SnappyCompression()
	case "lz4":
		codec = kgo.Lz4Compression()
	case "zstd":
		codec = kgo.ZstdCompression()
	default:
		return nil, fmt.Errorf("compression.type is %q: set none, gzip, snappy, lz4 or zstd", name)
	}
	c, err := kgo.DefaultCompressor(codec)
	if err != nil {
		return nil, fmt.Errorf("set up compression %s: %w", name, err)
	}
	return func(dst, src []byte) ([]byte, batch.Codec) {
		packed, used := c.Compress(bytes.NewBuffer(dst), src)
		return packed, batch.Codec(used)
	}, nil
}
