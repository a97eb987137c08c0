package manifest

import "strings"

// expand replaces $(NAME) by the variable's value, as the kubelet does in command, args and
// env: $$ is one dollar sign, and a reference to an unknown variable stays as it is.
// https://kubernetes.io/docs/tasks/inject-data-application
func expand(text string, lookup func(string) (string, bool)) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(text[:i])
		word, used := reference(text[i:], lookup)
		out.WriteString(word)
		text = text[i+used:]
	}
}

// reference handles a dollar sign and at least one more character: it returns the
// replacement, and how many bytes it replaces.
func reference(text string, lookup func(string) (string, bool)) (word string, used int) {
	switch text[1] {
	case '$':
		return "$", 2
	case '(':
		end := strings.IndexByte(text, ')')
		if end < 0 {
			return text[:2], 2
		}
		if value, ok := lookup(text[2:end]); ok {
			return value, end + 1
		}
		return text[:end+1], end + 1
	}
	return text[:2], 2
}
