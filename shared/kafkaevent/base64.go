package kafkaevent

import "encoding/binary"

// base64Values is the value of each character of RFC 4648's base64, 0xff for
// all others.
var base64Values = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range 26 {
		t['A'+i], t['a'+i] = byte(i), byte(26+i)
	}
	for i := range 10 {
		t['0'+i] = byte(52 + i)
	}
	t['+'], t['/'] = 62, 63
	return t
}()

// decodeBase64 decodes padded base64 in place. It returns the length of what it
// decoded and how much it read: all of b, unless b is not base64, and then from
// b[read] on nothing was changed.
//
// The standard library's decoder does not promise that source and destination
// may be one, and passes over line ends, which in JSON would be an error.
func decodeBase64(b []byte) (n, read int) {
	// Each step writes eight bytes, of which two are void, over eight that were
	// read: n never passes read.
	for len(b)-read > 8 {
		s := b[read : read+8 : read+8]
		v0, v1, v2, v3 := base64Values[s[0]], base64Values[s[1]], base64Values[s[2]], base64Values[s[3]]
		v4, v5, v6, v7 := base64Values[s[4]], base64Values[s[5]], base64Values[s[6]], base64Values[s[7]]
		if (v0|v1|v2|v3|v4|v5|v6|v7)&0x80 != 0 {
			break
		}
		binary.BigEndian.PutUint64(b[n:n+8],
			uint64(v0)<<58|uint64(v1)<<52|uint64(v2)<<46|uint64(v3)<<40|
				uint64(v4)<<34|uint64(v5)<<28|uint64(v6)<<22|uint64(v7)<<16)
		n += 6
		read += 8
	}
	for len(b)-read >= 4 {
		s := b[read : read+4 : read+4]
		pad := 0
		if len(b)-read == 4 && s[3] == '=' {
			pad = 1
			if s[2] == '=' {
				pad = 2
			}
		}
		var v uint32
		for i, c := range s {
			x := base64Values[c]
			if i >= 4-pad {
				x = 0
			}
			if x == 0xff {
				return n, read
			}
			v = v<<6 | uint32(x)
		}
		// Bits that padding leaves over must be zero, or two texts would mean
		// the same bytes and one of them was damaged.
		if pad == 1 && v&0xff != 0 || pad == 2 && v&0xffff != 0 {
			return n, read
		}
		b[n] = byte(v >> 16)
		if pad < 2 {
			b[n+1] = byte(v >> 8)
		}
		if pad < 1 {
			b[n+2] = byte(v)
		}
		n += 3 - pad
		read += 4
	}
	return n, read
}
