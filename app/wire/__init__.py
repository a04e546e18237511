"""Parts of requests and answers that several resources share: events, intervals, and the parts of an answer."""
