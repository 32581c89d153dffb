package main

import (
	"log"
	"net/http"
	"strings"
	"sync"
)

// counts is what the controller prints when it ends.
type counts struct {
	mutex sync.Mutex
	// VIA.
	Via string `json:"via"`
	// Requests, and those that failed for the caller.
	Requests int `json:"requests"`
	Failed   int `json:"failed"`
	// Answers 401 on the wire. A caller sees none of those that were repeated with another credential.
	Unauthorized int `json:"unauthorized"`
	// Events that the informer saw, and those that it did not.
	Events int `json:"events"`
	Lost   int `json:"lost"`
	// Lists of the informer after its first.
	Relists int `json:"relists"`

	streams, lists, last int
	succeeds             bool
}

func (c *counts) request(err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.Requests++
	if err != nil {
		c.Failed++
		log.Printf("request %d failed: %v", c.Requests, err)
	} else if !c.succeeds {
		log.Printf("request %d succeeded", c.Requests)
	}
	c.succeeds = err == nil
}

// event counts what is missing between this number and the one before.
func (c *counts) event(number int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.last != 0 && number > c.last+1 {
		log.Printf("events %d to %d are lost", c.last+1, number-1)
		c.Lost += number - c.last - 1
	}
	if number > c.last {
		c.Events++
		c.last = number
	}
}

func (c *counts) answer(request *http.Request, status int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if status == http.StatusUnauthorized {
		c.Unauthorized++
	}
	if status != http.StatusOK || !strings.HasSuffix(request.URL.Path, "/configmaps") {
		return
	}
	// An informer lists by a watch that begins with what is there, and by a list where the API server cannot do that.
	query := request.URL.Query()
	switch {
	case query.Has("sendInitialEvents"):
		c.streams++
	case !query.Has("watch"):
		c.lists++
	default:
		return
	}
	log.Printf("list: %s", request.URL.RawQuery)
	c.Relists = max(c.streams, c.lists) - 1
}

func (c *counts) hasLost() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.Failed > 0 || c.Lost > 0
}

func (c *counts) read() *counts {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return &counts{Via: c.Via, Requests: c.Requests, Failed: c.Failed, Unauthorized: c.Unauthorized,
		Events: c.Events, Lost: c.Lost, Relists: c.Relists}
}

// counting counts the answers below it.
type counting struct {
	below  http.RoundTripper
	counts *counts
}

func (c *counting) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.below.RoundTrip(request)
	if err == nil {
		c.counts.answer(request, response.StatusCode)
	}
	return response, err
}

func (c *counting) WrappedRoundTripper() http.RoundTripper { return c.below }
