/* What it costs to start a static program and wait for its end. */
int main(void) { return 0; }
