package kafkaevent

// headers takes the array of a record's headers, or null.
func (d *decoder) headers() string {
	switch d.space() {
	case 'n':
		return d.skip(1)
	case '[':
	default:
		return d.unwanted("headers", "an array of objects")
	}
	bad := d.array(d.headerObject)
	if bad == "" {
		d.header = -1
	}
	return bad
}

func (d *decoder) headerObject(i int) string {
	d.header, d.name, d.pairs = i, "", 0
	if d.space() != '{' {
		return d.unwanted("a header", "an object")
	}
	if bad := d.object(d.headerPair); bad != "" {
		return bad
	}
	if d.pairs == 0 {
		d.push(Header{Lost: true})
	}
	return ""
}

// headerPair takes name and value. Lambda writes one pair per object; more are
// read as more headers.
func (d *decoder) headerPair(name text) (bad string) {
	d.pairs++
	raw, ok := name.unescape()
	h := Header{Name: d.intern(raw)}
	d.name = h.Name
	if !ok {
		d.note(ErrRecord, "a header name has half a surrogate pair")
	}
	switch d.space() {
	case '[':
		h.Value, bad = d.numbers()
	case '"', 'n':
		h.Value, bad = d.base64("a header value")
	default:
		bad = d.unwanted("a header value", "an array of numbers")
	}
	d.push(h)
	d.name = ""
	return bad
}

// push adds a header to those of the record. They lie together in a chunk that
// records share; a full one is left to them, and only the record at hand moves.
func (d *decoder) push(h Header) {
	if len(d.arena) == cap(d.arena) {
		more := make([]Header, len(d.arena)-d.first, max(64, 2*cap(d.arena)))
		copy(more, d.arena[d.first:])
		d.arena, d.first = more, 0
	}
	d.arena = append(d.arena, h)
}

// numbers takes an array of byte values, −128..255, and writes the bytes over
// it: a number takes at least as much room as its byte.
func (d *decoder) numbers() ([]byte, string) {
	start := d.pos
	to := start
	d.pos++
	if d.take(']') {
		return d.buf[start:start:start], ""
	}
	for {
		var done bool
		if to, done = d.plainNumbers(to); done {
			return d.buf[start:to:to], ""
		}
		n, bad := d.number()
		if bad != "" {
			return nil, bad
		}
		d.buf[to] = n
		to++
		switch d.space() {
		case ',':
			d.pos++
		case ']':
			d.pos++
			return d.buf[start:to:to], ""
		default:
			return nil, "want ',' or ']'"
		}
	}
}

// plainNumbers takes what is written without blanks and needs no complaint, as
// all is that Lambda writes. It stops before the first element that is not, or
// after the end of the array.
func (d *decoder) plainNumbers(to int) (next int, done bool) {
	b, at := d.buf, d.pos
	for at+5 < len(b) {
		i, negative := at, b[at] == '-'
		if negative {
			i++
		}
		n := int(b[i] - '0')
		if n > 9 {
			break
		}
		i++
		for n != 0 && n < 100 && b[i]-'0' <= 9 {
			n = n*10 + int(b[i]-'0')
			i++
		}
		if negative {
			n = -n
		}
		end := b[i]
		if end != ',' && end != ']' || n < -128 || n > 255 {
			break
		}
		b[to] = byte(n)
		to++
		at = i + 1
		if end == ']' {
			done = true
			break
		}
	}
	d.pos = at
	return to, done
}

// number takes one element of a header value, whatever it is.
func (d *decoder) number() (byte, string) {
	if c := d.space(); c != '-' && c-'0' > 9 {
		return 0, d.unwanted("an element of a header value", "a number")
	}
	n, bad := d.num()
	if bad != "" {
		return 0, bad
	}
	if !n.whole || n.value < -128 || n.value > 255 {
		d.note(ErrRecord, "a header value holds a number that is not a byte, −128 to 255")
	}
	return byte(n.value), ""
}
