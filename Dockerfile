# The service alone, for a Postgres and a broker of your own: docker-compose.yml has both beside it.
# Not built with a Docker daemon: there was none. test/e2e/Docker.test.ts runs its install and its command on a copy of the files that it names.
FROM node:24.21.0-slim
WORKDIR /app
# Copied first, so that a change of the sources does not install again. The optional packages are an embedded Postgres and a Node.
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund
COPY src ./src
COPY migrations ./migrations
# The console shows them.
COPY docs/runbooks ./docs/runbooks
# The process's id file, and mail without an SMTP_URL. Everything else belongs to root, and stays as it is.
RUN mkdir .data && chown node:node .data && chmod 700 .data
USER node
# As `npm start`, without npm: node itself is process 1, so that it hears SIGTERM.
ENTRYPOINT ["node", "--max-semi-space-size=16", "--max-old-space-size=1536", "--disable-warning=TimeoutNegativeWarning", "src/paid-once.js"]
CMD ["serve"]
