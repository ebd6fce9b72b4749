const char *toy_greeting(void);
int toy_version(void);
